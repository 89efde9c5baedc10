"""Makes photos.npz: three photographs of scikit-image's data (cat, coffee, rocket; all CC0), their
middle 7/8 at 224 x 224, u8 [3, 224, 224, 3]. Needs scikit-image and Pillow:

    python tests/golden/make_photos.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import skimage
from PIL import Image

FOLDER = Path(skimage.__file__).parent / "data"


def middle(path: Path) -> np.ndarray:
    """What the model looks at."""
    photo = Image.open(path).convert("RGB")
    w, h = photo.size
    side = int(min(w, h) * 0.875)
    box = ((w - side) // 2, (h - side) // 2, (w + side) // 2, (h + side) // 2)
    return np.asarray(photo.crop(box).resize((224, 224), Image.Resampling.BICUBIC))


if __name__ == "__main__":
    found = [middle(FOLDER / name) for name in ("chelsea.png", "coffee.png", "rocket.jpg")]
    np.savez_compressed(Path(__file__).with_name("photos.npz"), photos=np.stack(found))
