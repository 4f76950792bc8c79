"""fill, complete and classify, and the options they share."""
