// What the user sets. The API key stays in this tab's session; nothing else is secret.

const FIELDS = { "api-key": sessionStorage, voice: localStorage, instructions: localStorage, theme: localStorage };

export class Settings {
  constructor(dialog) {
    this.dialog = dialog;
    for (const [name, store] of Object.entries(FIELDS)) {
      const field = this.#field(name);
      field.value = store.getItem(`omnipipe.${name}`) ?? "";
      field.addEventListener("input", () => {
        store.setItem(`omnipipe.${name}`, field.value);
        this.#applyTheme();
      });
    }
    this.#applyTheme();
  }

  get(name) {
    return this.#field(name).value.trim();
  }

  open() {
    this.dialog.showModal();
  }

  #field(name) {
    return this.dialog.querySelector(`#${name}`);
  }

  #applyTheme() {
    document.documentElement.dataset.theme = this.get("theme");
  }
}
