"""The errors of a training in words for its user."""

from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import CalledProcessError

from transformer_mt.companion import blamed
from transformer_mt.device import is_compiler_error, is_out_of_memory
from transformer_mt.errors import WorkError, advice_on
from transformer_mt.ranks import refuse_lost_rank


@contextmanager
def plain_errors() -> Iterator[None]:
    """Within it, errors of the system, of the compiler and of lost ranks become a WorkError with advice.

    The process group must not be destroyed after one: NCCL would wait for ranks that are blocked in a
    collective. The caller prints the error and ends the process.
    """
    try:
        yield
    except BrokenPipeError:  # nobody reads what is printed
        raise
    except OSError as error:
        if blamed(error):
            raise
        raise WorkError(
            f"{error.filename or 'a file'}: {error.strerror or error}; {advice_on(error)}, then run the same "
            "command to resume"
        ) from error
    except (RuntimeError, CalledProcessError) as error:
        if blamed(error):
            raise
        refuse_lost_rank(error)
        if is_compiler_error(error):
            raise WorkError(
                f"torch.compile failed: {str(error).strip().splitlines()[0]}; set train.compile=false"
            ) from None
        if is_out_of_memory(
            error
        ):  # in a validation or the optimizer; a batch of an update would have been split
            raise WorkError(
                "not enough memory; close other programs, or lower decode.batch_tokens and "
                "train.micro_batch_tokens, and run the same command to resume, or train a smaller model "
                "under another name"
            ) from None
        raise
