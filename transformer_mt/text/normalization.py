"""Which languages have letters or marks that Unicode's NFKC would replace by others."""

from transformer_mt.text.languages import base_code
from transformer_mt.text.unsegmented import has_no_word_spaces

# What NFKC replaces: an Armenian ligature that is a letter of its own, the dotted letters of some Indic
# scripts, pointed letters of Yiddish, and letters of Afrikaans and Catalan that are one character.
# Written as numbers: an editor may normalise them.
_CHANGED = {
    **dict.fromkeys(("hy", "hye", "hyw"), "\u0587"),
    **dict.fromkeys(
        ("hi", "hin", "mr", "mar", "ne", "npi", "nep", "sa", "san", "bho", "mai"),
        "\u0958 \u0959 \u095a \u095b \u095c \u095d \u095e \u095f",
    ),
    **dict.fromkeys(("bn", "ben", "as", "asm", "mni"), "\u09dc \u09dd \u09df"),
    **dict.fromkeys(("pa", "pan"), "\u0a33 \u0a36 \u0a59 \u0a5a \u0a5b \u0a5e"),
    **dict.fromkeys(("or", "ori", "ory"), "\u0b5c \u0b5d"),
    **dict.fromkeys(("yi", "yid", "ydd"), "\ufb2e \ufb2f \ufb1f"),
    **dict.fromkeys(("af", "afr"), "\u0149"),
    **dict.fromkeys(("ca", "cat"), "\u0140"),
    **dict.fromkeys(("th", "tha", "tts", "nod", "sou"), "\u0e33"),
    **dict.fromkeys(("lo", "lao"), "\u0eb3 \u0edc \u0edd"),
}


def changed_by_nfkc(language: str) -> str:
    """Characters of the language that NFKC replaces, for a message; empty where it replaces none."""
    changed = _CHANGED.get(base_code(language), "")
    return changed or ("its full-width or composed characters" if has_no_word_spaces(language) else "")


def normalization_for(*languages: str) -> str:
    """SentencePiece's rule for texts in these languages: identity if another would change their letters."""
    return "identity" if any(map(changed_by_nfkc, languages)) else "nmt_nfkc"
