"""Entry points of `transformer-mt` and `translate`. `python -m transformer_mt` runs `transformer-mt`."""

import signal


def main() -> int:
    """Run `transformer-mt`; returns the exit status."""
    _stop_quietly()
    from transformer_mt import cli

    return cli.main()


def translate_main() -> int:
    """Run `translate`; returns the exit status."""
    _stop_quietly()
    from transformer_mt import cli

    return cli.translate_main()


def _stop_quietly() -> None:
    """Make Ctrl-C end the process without a traceback, until the command installs its own handler."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the parent process ignores it
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    raise SystemExit(main())
