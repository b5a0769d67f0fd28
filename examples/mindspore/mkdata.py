"""Makes a small data set in the format of MNIST, for machines without the real one.

    python mkdata.py DIRECTORY

640 images of 28 x 28 pixels in ten classes: noise, and a bright line whose height tells the class. The files are the
same on every host, byte for byte. Standard library only. The format: http://yann.lecun.com/exdb/mnist
"""

import os
import random
import shutil
import struct
import sys
import tempfile

IMAGES, CLASSES, SIDE = 640, 10, 28
FILES = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def image(label, dice):
    """Pixels, row by row."""
    pixels = bytearray(dice.choices(range(128), k=SIDE * SIDE))
    row = 2 * label + 3
    pixels[row * SIDE : (row + 1) * SIDE] = bytes([255] * SIDE)
    return bytes(pixels)


def write(directory):
    dice = random.Random(7)
    labels = [at % CLASSES for at in range(IMAGES)]
    with open(os.path.join(directory, FILES[0]), "wb") as file:
        file.write(struct.pack(">IIII", 2051, IMAGES, SIDE, SIDE))
        file.writelines(image(label, dice) for label in labels)
    with open(os.path.join(directory, FILES[1]), "wb") as file:
        file.write(struct.pack(">II", 2049, IMAGES) + bytes(labels))


def ensure(directory):
    """Make `directory` unless it is there. All ranks may do this at once: the first rename wins, no one sees half."""
    directory = os.path.abspath(directory)
    if not is_whole(directory):
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        draft = tempfile.mkdtemp(prefix="mnist-", dir=os.path.dirname(directory))
        try:
            write(draft)
            os.chmod(draft, 0o755)
            os.rename(draft, directory)
        except OSError as error:
            if not is_whole(directory):
                raise SystemExit(f"cannot make the data set in {directory}: {error}") from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return directory


def is_whole(directory):
    return all(os.path.exists(os.path.join(directory, name)) for name in FILES)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python mkdata.py DIRECTORY")
    print(ensure(sys.argv[1]))
