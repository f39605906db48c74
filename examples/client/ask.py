"""Ask something, see the text, keep the speech.

python examples/client/ask.py localhost:50050 "Who are you?"
"""

import sys

from omni_client import OmniClient


def main(target: str, question: str) -> None:
    with OmniClient(target) as client:
        answer = client.chat(question, modalities=["text", "audio"])
    print(answer.text)
    if answer.audio is not None:
        answer.audio.to_wav("answer.wav")
        print(f"answer.wav: {answer.audio.seconds:.2f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
