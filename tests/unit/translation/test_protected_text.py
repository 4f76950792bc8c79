import pytest

from transformer_mt.errors import InputError
from transformer_mt.text.sentences import has_words
from transformer_mt.translation.stages.protected_text import ProtectedText, rejoin

TAG = ProtectedText(r"</?\w+/?>|\{\w+\}")


def test_spans_are_the_whole_text():
    parts = TAG.spans("Hello <b>{name}</b>, come in")
    assert "".join(part.text for part in parts) == "Hello <b>{name}</b>, come in"
    assert [part.text for part in parts if part.protected] == ["<b>", "{name}", "</b>"]
    assert [part.text for part in parts if not part.protected] == ["Hello ", ", come in"]


@pytest.mark.parametrize(
    "source, translation, survived",
    [
        ("see {a} and {a}", "{a} und", False),
        ("see {a}", "{a} {b}", False),
        ("no such thing", "nichts", True),
        ("{a} sees {b}", "{b} von {a} gesehen", True),
        ("the <b>dog</b>", "der </b>Hund<b>", False),
        ("<b>a</b> <i>c</i>", "<i>c</i> <b>a</b>", True),
        ("<b><i>a</i></b>", "<b><i>a</b></i>", True),
        ("a <br/> c <br> d", "c <br> d <br/>", True),
        ("<b>a</b> <b>c</b>", "<b>a<b> c</b></b>", True),
    ],
)
def test_text_survives_as_often_and_in_an_order_that_means_the_same(source, translation, survived):
    assert TAG.survived(source, translation) is survived


def test_spaces_around_protected_text_stay():
    parts = TAG.spans("Hello <b> big </b>world ")
    assert rejoin(parts, ["Hallo", "große", "Welt"]) == "Hallo <b> große </b>Welt "


def test_a_match_of_nothing_is_none():
    numbers = ProtectedText(r"\b\d*")
    assert [(part.text, part.protected) for part in numbers.spans("See 12 dogs")] == [
        ("See ", False),
        ("12", True),
        (" dogs", False),
    ]
    assert numbers.survived("See 12", "12 da")
    assert numbers.is_in("See 12") and not numbers.is_in("See")


@pytest.mark.parametrize(
    "pattern, message", [("(", "must be a regular expression"), ("x*", "must not match the empty text")]
)
def test_patterns_that_are_none_are_refused(pattern, message):
    with pytest.raises(InputError, match=message):
        ProtectedText(pattern)


USUALLY = ProtectedText(None, usual=True)


@pytest.mark.parametrize(
    "text, kept",
    [
        ("See https://example.org/a?b=c#d, then go.", ["https://example.org/a?b=c#d"]),
        ("Write to jo.doe+x@mail.example.com.", ["jo.doe+x@mail.example.com"]),
        ("See www.example.org/x (or ftp://a.b/c).", ["www.example.org/x", "ftp://a.b/c"]),
        ("Call tel:+49123 or mailto:a@b.cd!", ["tel:+49123", "mailto:a@b.cd"]),
        ("Dear {name}, {0:.2f} {user.name!r} {} left", ["{name}", "{0:.2f}", "{user.name!r}", "{}"]),
        ("{{ user }} and {{{raw}}} and {% if x %}", ["{{ user }}", "{{{raw}}}", "{% if x %}"]),
        ("${x} #{y} %{z}", ["${x}", "#{y}", "%{z}"]),
        ("%s has %1$s, %-5d of %(n)d, %.2f%%, %@", ["%s", "%1$s", "%-5d", "%(n)d", "%.2f", "%%", "%@"]),
        ("{t:,.2f} {pct:.1%} {n:>10} {d:%Y-%m}", ["{t:,.2f}", "{pct:.1%}", "{n:>10}", "{d:%Y-%m}"]),
        ("{0:yyyy-MM} {0,10:C} { $user } { -brand }", ["{0:yyyy-MM}", "{0,10:C}", "{ $user }", "{ -brand }"]),
        ("{note: this is a text} and {a word}", []),
        ("%d%% at %Y-%m, %<n>.2f of %*d, %#@a@", ["%d", "%%", "%Y", "%m", "%<n>.2f", "%*d", "%#@a@"]),
        ("<1>Two</1> <0/> %name% $t(a.b) <3 5>4", ["<1>", "</1>", "<0/>", "%name%", "$t(a.b)"]),
        ("a 🌷🌷 b 👩‍🔬👍🏽 c 🇩🇪🏴󠁧󠁢󠁳󠁣󠁴󠁿 ♥️", ["🌷", "🌷", "👩‍🔬", "👍🏽", "🇩🇪", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "♥️"]),
        ("%1 of %2 files, %L1", ["%1", "%2", "%L1"]),
        ("A <b>big</b> dog<br/> <x id='1'/>", ["<b>", "</b>", "<br/>", "<x id='1'/>"]),
        ("A &amp; B &#160; C &nbsp; D", ["&amp;", "&#160;", "&nbsp;"]),
        ("<?= $name ?> and <%= name %>", ["<?= $name ?>", "<%= name %>"]),
        ("It weighs 2.5 kg, at 20°C and 50%.", ["2.5 kg", "20°C", "50%"]),
        ("From 3,000 m² to 120 km/h in 5 s", ["3,000 m²", "120 km/h", "5 s"]),
        ("In 2010 5 in the morning, 3 men, 100 % der", ["100 %"]),
        ("5 bars, 3 mice, 7 hours; 3 < 4 and a > b", []),
        ("half of 100% of it, 50 percent, {a b c, d e f}", ["100%"]),
    ],
)  # fmt: skip
def test_what_is_usually_protected(text, kept):
    assert [text[begin:end] for begin, end in USUALLY.find(text)] == kept


def test_words_in_another_script_are_protected_but_latin_ones():
    """A model that knows no Chinese makes sentences up."""
    text = "Sein Name, 毛泽东 oder Mao, in der Сибирь."
    for language, kept in (("de", ["毛泽东", "Сибирь"]), ("zh", ["Сибирь"]), ("ru", ["毛泽东"]), ("xx", [])):
        protected = ProtectedText(None, usual=True, language=language)
        assert [text[begin:end] for begin, end in protected.find(text)] == kept


@pytest.mark.parametrize("text", ["a" * 20_000, "1 " * 10_000, "{" * 20_000, "<%" * 10_000, "a@" * 10_000,
                                  "1.1" * 7000, "http:" * 4000, "&a" * 10_000, "<a " * 7000])  # fmt: skip
def test_long_text_takes_no_longer_than_its_length(text):
    assert len(USUALLY.find(text)) <= len(text)  # the square of the length would take minutes


@pytest.mark.parametrize(
    "source, translation, survives",
    [
        ("It weighs 2.5 kg.", "Es wiegt 2,5kg.", True),
        ("It weighs 2.5 kg.", "Es wiegt 25 g.", False),
        ("It weighs 1,500 kg.", "Es wiegt 1.500 kg.", True),
        ("20 percent of 5 kg", "20 % von 5 kg", True),
    ],
)
def test_numbers_survive_in_the_form_of_the_target_language(source, translation, survives):
    assert USUALLY.survived(source, translation) is survives


def test_a_pattern_of_ones_own_joins_the_usual_ones():
    both = ProtectedText(r"(?i)(x)y\1", usual=True)
    assert [both.spans("XYX and {a}")[i].text for i in (0, 2)] == ["XYX", "{a}"]


@pytest.mark.parametrize(
    "text, translated",
    [
        ("A dog", True), ("犬", True), ("แมว", True), ("...", False), ("42", False), ("🌷🌷 🌷", False),
        ("* * *", False), ("https://example.org/x?y=1", False), ("a@b.cd, c@d.ef", False),
        ("{name}: %s", False),
        ("5 kg - 10 kg", False), ("5 kg of it", True), ("<br/>", False), ("½ ²", False),
        ("{name} says", True),
    ],
)  # fmt: skip
def test_only_what_has_words_is_translated(text, translated):
    assert has_words(text) is translated
