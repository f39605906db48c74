"""A fake `nvidia-cuda-mps-control`: same commands, same files, no GPU.

Started with `-d` it leaves a daemon behind that owns CUDA_MPS_PIPE_DIRECTORY, with `-f` it is that
daemon; otherwise it passes the command on its standard input to that daemon and prints the answer.
Clients attach when a test says so, by commands of its own: `fake_attach PID`, `fake_deaf` (takes no
more connections) and `fake_mute` (takes them and never answers). FAKE_MPS_CALLS names a file that
notes what was asked of it, FAKE_MPS_FAULT=start-fails makes it fail like a broken driver.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

SERVER_PID = 7
QUIET = ("get_server_list", "get_client_list", "get_default_active_thread_percentage")


def main() -> int:
    pipe = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    if "--daemon" in sys.argv or "-f" in sys.argv:
        return Daemon(pipe).serve()
    if "-d" in sys.argv:
        return start(pipe)
    for command in sys.stdin.read().splitlines():
        sys.stdout.write(ask(pipe, command))
    return 0


def start(pipe: Path) -> int:
    note(f"start {os.environ['CUDA_VISIBLE_DEVICES']}")
    if os.environ.get("FAKE_MPS_FAULT") == "start-fails":
        print("boom", file=sys.stderr)
        return 1
    reader, writer = os.pipe()
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, "--daemon"],
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(writer)
    # The daemon writes a line once it listens.
    return 0 if os.read(reader, 16) else 1


def ask(pipe: Path, command: str) -> str:
    """Send one command to the daemon and return its answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(pipe / "control"))
        connection.sendall(f"{command}\n".encode())
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile() as answer:
            return answer.read()


def note(text: str) -> None:
    with Path(os.environ["FAKE_MPS_CALLS"]).open("a") as calls:
        calls.write(f"{text}\n")


@dataclass
class Daemon:
    """The daemon."""

    pipe: Path
    clients: list[int] = field(default_factory=list)
    percentage: float = 100.0
    muted: list[socket.socket] | None = None
    deaf: bool = False

    def serve(self) -> int:
        pid_file = self.pipe / "nvidia-cuda-mps-control.pid"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.pipe / "control"))
            listener.listen()
            pid_file.write_text(str(os.getpid()))
            os.write(1, b"listening\n")
            os.dup2(0, 1)
            while self._serve_one(listener):
                pass
        if self.deaf:
            signal.pause()
        pid_file.unlink()
        return 0

    def _serve_one(self, listener: socket.socket) -> bool:
        connection, _ = listener.accept()
        if self.muted is not None:
            self.muted.append(connection)
            return True
        with connection, connection.makefile("rw") as stream:
            words = stream.readline().split()
            if words[0] not in QUIET and not words[0].startswith("fake_"):
                note(" ".join(words))
            stream.write(self._answer(words))
        return words[0] != "quit" and not self.deaf

    def _answer(self, words: list[str]) -> str:
        self.clients = [pid for pid in self.clients if Path(f"/proc/{pid}").exists()]
        match words:
            case ["get_server_list"]:
                return f"{SERVER_PID}\n" if self.clients else ""
            case ["get_client_list", _]:
                return "".join(f"{pid}\n" for pid in self.clients)
            case ["terminate_client", _, pid]:
                self.clients.remove(int(pid))
            case ["set_default_active_thread_percentage", percentage]:
                self.percentage = float(percentage)
            case ["get_default_active_thread_percentage"]:
                return f"{self.percentage}\n"
            case ["fake_attach", pid]:
                self.clients.append(int(pid))
            case ["fake_deaf"]:
                self.deaf = True
            case ["fake_mute"]:
                self.muted = []
        return ""


if __name__ == "__main__":
    sys.exit(main())
