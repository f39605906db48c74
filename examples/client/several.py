"""Several questions at once, over one connection, with a deadline for each.

python examples/client/several.py localhost:50050 "One?" "Two?"
"""

import asyncio
import sys

from omni_client import AsyncOmniClient, ServiceError


async def main(target: str, *questions: str) -> None:
    async with AsyncOmniClient(target) as client:
        asked = [client.chat(one, modalities=["text"], timeout_seconds=60) for one in questions]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for question, found in zip(questions, answers, strict=True):
            match found:
                case ServiceError():
                    print(f"{question} failed: {found} ({found.info.reason})")
                case BaseException():
                    raise found
                case _:
                    print(f"{question} {found.text}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
