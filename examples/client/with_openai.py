"""The same with the `openai` package, which knows nothing of omnipipe.

python examples/client/with_openai.py http://localhost:8000/v1 "Who are you?"
"""

import base64
import sys

from openai import OpenAI


def main(url: str, question: str) -> None:
    client = OpenAI(base_url=url, api_key="none")
    completion = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": question}],
        modalities=["text", "audio"],
        audio={"voice": "ethan", "format": "wav"},
    )
    message = completion.choices[0].message
    print(message.content)
    if message.audio is not None:
        with open("answer.wav", "wb") as file:
            print(f"answer.wav: {file.write(base64.b64decode(message.audio.data))} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
