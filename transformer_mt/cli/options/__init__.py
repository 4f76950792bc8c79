"""Options that several commands share: parser, flags of config sections, models, test sets, texts, ranks."""
