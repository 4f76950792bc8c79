"""Office documents and electronic books: zip files, some of whose members hold text."""
