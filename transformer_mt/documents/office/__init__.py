"""Documents of office programs and electronic books: zip files, some of whose members have text."""
