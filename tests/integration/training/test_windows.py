"""What Windows lacks: a training, a translation and a new config do without it."""

import os
import shutil
import signal
import sys

from tests.helpers.command import run_command


def _become_windows() -> None:
    """Take away what only other systems have. What libraries do there is not part of this."""
    for name in ("SIGHUP", "SIGUSR1", "SIGPIPE", "SIGKILL", "SIGALRM"):
        delattr(signal, name)
    for name in ("fork", "sysconf", "sched_getaffinity", "getuid", "geteuid", "getloadavg", "killpg"):
        delattr(os, name)
    for name in ("resource", "fcntl", "pwd", "grp", "termios"):
        sys.modules[name] = None
    opened, flush = os.open, os.fsync
    may_write: dict[int, bool] = {}

    def open_file(path, flags, *rest, **options):
        if os.path.isdir(path) and options.get("dir_fd") is None:
            raise PermissionError(13, "Permission denied", str(path))
        number = opened(path, flags, *rest, **options)
        may_write[number] = bool(flags & (os.O_RDWR | os.O_WRONLY))
        return number

    def fsync(number):
        if not may_write.get(number, True):
            raise OSError(9, "Bad file descriptor")
        flush(number)

    os.open, os.fsync = open_file, fsync
    shutil._use_fd_functions = False  # it opens folders elsewhere
    sys.platform = "win32"


def test_a_model_is_trained_resumed_and_translates(tmp_path, write_config):
    config = write_config(train={"max_updates": 6, "validate_every": 3})
    options = {"cwd": tmp_path, "before": (_become_windows,)}
    longer, text = "train.max_updates=12", "A dog."
    for words in (("train", config), ("train", config, longer), ("translate", "runs/tiny", text)):
        done = run_command(*words, **options)
        assert done.status == 0, done.err
    assert done.out.strip()
