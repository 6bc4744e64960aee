"""Write the zoo's cards to `src/favor/zoo/index.json`, so that `favor list` needs no torch. Called by `make cards`."""

from favor.zoo.index import INDEX, write_index
from favor.zoo.registry import package_cards

if __name__ == "__main__":
    cards = package_cards()
    write_index(cards)
    print(f"{len(cards)} cards: {INDEX}")
