"""The words of the toy language: some 200 English ones with the German forms the grammar of toy.py needs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """English singular and plural; German singular, plural, and gender (m, f, n)."""

    en: str
    en_plural: str
    de: str
    de_plural: str
    gender: str


@dataclass(frozen=True)
class Verb:
    """English infinitive, third person, participle; German first and third person, infinitive, participle,
    auxiliary.

    No verb here has a separable prefix, and the German plural is the infinitive.
    """

    en: str
    en_third: str
    en_participle: str
    de_first: str
    de_third: str
    de: str
    de_participle: str
    auxiliary: str = "haben"


def _nouns(table: str) -> list[Noun]:
    return [Noun(*line.split()) for line in table.strip().splitlines()]


def _verbs(table: str) -> list[Verb]:
    return [Verb(*line.split()) for line in table.strip().splitlines()]


PERSONS = _nouns("""
man men Mann Männer m
woman women Frau Frauen f
child children Kind Kinder n
girl girls Mädchen Mädchen n
teacher teachers Lehrer Lehrer m
painter painters Maler Maler m
singer singers Sänger Sänger m
baker bakers Bäcker Bäcker m
gardener gardeners Gärtner Gärtner m
farmer farmers Landwirt Landwirte m
friend friends Freund Freunde m
father fathers Vater Väter m
brother brothers Bruder Brüder m
sister sisters Schwester Schwestern f
mother mothers Mutter Mütter f
daughter daughters Tochter Töchter f
son sons Sohn Söhne m
aunt aunts Tante Tanten f
uncle uncles Onkel Onkel m
king kings König Könige m
queen queens Königin Königinnen f
doctor doctors Arzt Ärzte m
neighbour neighbours Nachbarin Nachbarinnen f
dog dogs Hund Hunde m
cat cats Katze Katzen f
bird birds Vogel Vögel m
horse horses Pferd Pferde n
cow cows Kuh Kühe f
goat goats Ziege Ziegen f
mouse mice Maus Mäuse f
""")

THINGS = _nouns("""
book books Buch Bücher n
letter letters Brief Briefe m
picture pictures Bild Bilder n
flower flowers Blume Blumen f
apple apples Apfel Äpfel m
pear pears Birne Birnen f
bread breads Brot Brote n
cake cakes Kuchen Kuchen m
cup cups Tasse Tassen f
glass glasses Glas Gläser n
bottle bottles Flasche Flaschen f
knife knives Messer Messer n
key keys Schlüssel Schlüssel m
bag bags Tasche Taschen f
coat coats Mantel Mäntel m
shirt shirts Hemd Hemden n
hat hats Hut Hüte m
shoe shoes Schuh Schuhe m
clock clocks Uhr Uhren f
lamp lamps Lampe Lampen f
ball balls Ball Bälle m
car cars Auto Autos n
bicycle bicycles Fahrrad Fahrräder n
boat boats Boot Boote n
newspaper newspapers Zeitung Zeitungen f
egg eggs Ei Eier n
carrot carrots Karotte Karotten f
stone stones Stein Steine m
ring rings Ring Ringe m
guitar guitars Gitarre Gitarren f
""")

# A place goes with its preposition; both are followed by the dative.
PLACES = [
    (en, de, _nouns(noun)[0])
    for en, de, noun in [
        ("in", "in", "garden gardens Garten Gärten m"),
        ("in", "in", "house houses Haus Häuser n"),
        ("in", "in", "kitchen kitchens Küche Küchen f"),
        ("in", "in", "town towns Stadt Städte f"),
        ("in", "in", "forest forests Wald Wälder m"),
        ("in", "in", "room rooms Zimmer Zimmer n"),
        ("in", "in", "school schools Schule Schulen f"),
        ("in", "in", "village villages Dorf Dörfer n"),
        ("on", "auf", "table tables Tisch Tische m"),
        ("on", "auf", "street streets Straße Straßen f"),
        ("on", "auf", "roof roofs Dach Dächer n"),
        ("on", "auf", "bridge bridges Brücke Brücken f"),
        ("under", "unter", "tree trees Baum Bäume m"),
        ("behind", "hinter", "door doors Tür Türen f"),
        ("behind", "hinter", "wall walls Mauer Mauern f"),
        ("next to", "neben", "window windows Fenster Fenster n"),
        ("next to", "neben", "chair chairs Stuhl Stühle m"),
        ("near", "bei", "river rivers Fluss Flüsse m"),
        ("near", "bei", "lake lakes See Seen m"),
        ("near", "bei", "church churches Kirche Kirchen f"),
    ]
]

# English, and the German stem to which the endings are added.
ADJECTIVES = [
    tuple(line.split())
    for line in """
small klein
big groß
old alt
young jung
red rot
blue blau
green grün
black schwarz
white weiß
brown braun
new neu
beautiful schön
fast schnell
slow langsam
tired müd
friendly freundlich
calm ruhig
strong stark
sad traurig
happy glücklich
clever klug
warm warm
cold kalt
heavy schwer
light leicht
expensive teur
cheap billig
strange seltsam
famous berühmt
clean sauber
dirty schmutzig
poor arm
rich reich
quiet still
loud laut
""".strip().splitlines()
]

TRANSITIVE = _verbs("""
see sees seen sehe sieht sehen gesehen
find finds found finde findet finden gefunden
buy buys bought kaufe kauft kaufen gekauft
look_for looks_for looked_for suche sucht suchen gesucht
love loves loved liebe liebt lieben geliebt
paint paints painted male malt malen gemalt
carry carries carried trage trägt tragen getragen
hear hears heard höre hört hören gehört
wash washes washed wasche wäscht waschen gewaschen
fetch fetches fetched hole holt holen geholt
draw draws drawn zeichne zeichnet zeichnen gezeichnet
sell sells sold verkaufe verkauft verkaufen verkauft
forget forgets forgotten vergesse vergisst vergessen vergessen
hide hides hidden verstecke versteckt verstecken versteckt
need needs needed brauche braucht brauchen gebraucht
know knows known kenne kennt kennen gekannt
watch watches watched beobachte beobachtet beobachten beobachtet
lose loses lost verliere verliert verlieren verloren
clean cleans cleaned putze putzt putzen geputzt
praise praises praised lobe lobt loben gelobt
""")

# "gives the man the book": a dative and an accusative object.
DITRANSITIVE = _verbs("""
give gives given gebe gibt geben gegeben
show shows shown zeige zeigt zeigen gezeigt
send sends sent schicke schickt schicken geschickt
bring brings brought bringe bringt bringen gebracht
lend lends lent leihe leiht leihen geliehen
""")

INTRANSITIVE = _verbs("""
sleep sleeps slept schlafe schläft schlafen geschlafen
laugh laughs laughed lache lacht lachen gelacht
cry cries cried weine weint weinen geweint
sing sings sung singe singt singen gesungen
dance dances danced tanze tanzt tanzen getanzt
play plays played spiele spielt spielen gespielt
work works worked arbeite arbeitet arbeiten gearbeitet
wait waits waited warte wartet warten gewartet
read reads read lese liest lesen gelesen
write writes written schreibe schreibt schreiben geschrieben
cook cooks cooked koche kocht kochen gekocht
dream dreams dreamt träume träumt träumen geträumt
run runs run laufe läuft laufen gelaufen sein
swim swims swum schwimme schwimmt schwimmen geschwommen sein
stay stays stayed bleibe bleibt bleiben geblieben sein
disappear disappears disappeared verschwinde verschwindet verschwinden verschwunden sein
""")

# Verbs that take a whole sentence: "says that ...".
SPEECH = _verbs("""
say says said sage sagt sagen gesagt
believe believes believed glaube glaubt glauben geglaubt
think thinks thought denke denkt denken gedacht
hope hopes hoped hoffe hofft hoffen gehofft
""")

MODALS = [
    ("can", "kann", "können"),
    ("must", "muss", "müssen"),
    ("should", "soll", "sollen"),
    ("may", "darf", "dürfen"),
]

PRONOUNS = [
    ("I", "ich", "first"),
    ("he", "er", "third"),
    ("she", "sie", "third"),
    ("we", "wir", "plural"),
    ("they", "sie", "plural"),
]

TIMES = [
    ("today", "heute"),
    ("now", "jetzt"),
    ("often", "oft"),
    ("in the evening", "am Abend"),
    ("in the morning", "am Morgen"),
    ("every day", "jeden Tag"),
    ("tomorrow", "morgen"),
    ("on Sunday", "am Sonntag"),
    ("sometimes", "manchmal"),
    ("at night", "in der Nacht"),
]

NUMBERS = [
    ("two", "zwei"), ("three", "drei"), ("four", "vier"), ("five", "fünf"), ("six", "sechs"),
    ("seven", "sieben"),
    ("eight", "acht"), ("nine", "neun"), ("ten", "zehn"), ("eleven", "elf"), ("twelve", "zwölf"),
]  # fmt: skip

CONJUNCTIONS = [("because", "weil"), ("although", "obwohl"), ("when", "wenn"), ("while", "während")]
