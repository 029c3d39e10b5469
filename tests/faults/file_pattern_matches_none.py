"""A pattern matches no file.

It is refused when the flow is built: a pattern without files is not a flow without rows.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_images("photos/*.jpg")

# Seen:
# flowdsl.errors.SourceError: from_images: no file matches 'photos/*.jpg'; the folder
# 'photos' does not exist
