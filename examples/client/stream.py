"""Show text and take speech as they arise, with a picture in the question.

python examples/client/stream.py localhost:50050 picture.png
"""

import sys

from omni_client import AudioChunk, Message, OmniClient, Sampling, TextDelta, Usage, image


def main(target: str, picture: str) -> None:
    question = [
        Message.system("Answer in one sentence."),
        Message.user("What is this?", image(picture)),
    ]
    samples = 0
    with (
        OmniClient(target) as client,
        client.stream(question, voice="ethan", sampling=Sampling(max_tokens=200)) as events,
    ):
        for event in events:
            match event:
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case AudioChunk():
                    samples += len(event.samples)  # a player would take event.samples here
                case Usage(completion_tokens=tokens):
                    print(f"\n{tokens} tokens, {samples} samples")


if __name__ == "__main__":
    main(*sys.argv[1:])
