"""A form of exported models."""

import shutil

from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2


class Zip(ToCTranslate2):
    """CTranslate2's folder in one file, packed when it has been proven."""

    name = "a zip of CTranslate2's folder"

    def pack(self, folder, out, config):
        shutil.make_archive(str(folder), "zip", folder)
        folder.with_name(f"{folder.name}.zip").rename(out)
        shutil.rmtree(folder)
