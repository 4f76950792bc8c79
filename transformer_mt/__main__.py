"""Entry points of the programs `transformer-mt` and `translate`: `python -m transformer_mt` is the first."""

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
    """Ctrl-C while the modules load ends the process, not with a traceback. The command replaces this."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the parent process ignores it
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    raise SystemExit(main())
