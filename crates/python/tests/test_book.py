"""Every Python snippet of the book runs."""

import re
import unittest
from pathlib import Path

BOOK = Path(__file__).parents[3] / "book" / "src"


class Book(unittest.TestCase):
    def test_snippets(self):
        count = 0
        for page in sorted(BOOK.glob("*.md")):
            # Snippets of one page follow each other.
            names = {}
            for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M):
                count += 1
                exec(compile(code, f"{page.name}, snippet {count}", "exec"), names)
        self.assertGreaterEqual(count, 7)


if __name__ == "__main__":
    unittest.main()
