"""A command: `transformer-mt vowels TEXT`."""


def add_arguments(parser):
    parser.add_argument("text", nargs="+")
    parser.set_defaults(command=count)


def count(arguments):
    print(sum(map("".join(arguments.text).count, "aeiou")))
