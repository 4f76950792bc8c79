"""Our companions: each is a folder that can be deleted, attached as another's package would be."""
