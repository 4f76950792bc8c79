"""Options that several commands share: the parser, flags of config sections, models, test sets."""
