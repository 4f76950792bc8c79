"""A run's folder, and the config that is trained in it.

In: a path, or the config a user wrote. Out: the files of the folder with one error for each that is missing
or damaged, and the resolved config. Begin with `folder.py`; docs/reference/run_folder.md lists the files.
"""
