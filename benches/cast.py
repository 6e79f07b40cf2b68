#!/usr/bin/env python3
"""Records `tds bulk` on a terminal, against the simulated service, and writes benches/plots/bulk.svg.

    cargo build --release -p tds && benches/cast.py target/release/tds

The picture is a strip of screens, one beside the other, that moves by one screen at a time. A viewer that shows no animation shows the
last screen.
"""
import fcntl, html, os, pathlib, pty, re, select, struct, sys, tempfile, termios, time

COLUMNS, ROWS = 80, 7
LIST = "/v1/history/{2026-01-01..2026-10-27}?bytes=60000&rate=60000\n"
SHOWN = "tds bulk --list days.txt --out history --simulate"
EVERY = 0.25  # seconds: the bar is drawn four times a second
LAST = 4.0  # seconds for which the last screen stays
WIDTH, LINE, LEFT, TOP = 8.4, 19, 12, 12  # of a character of 14 pixels, of a line, and the margins


class Screen:
    """As much of a terminal as the program uses."""

    def __init__(self):
        self.rows, self.row, self.column, self.green = [[]], 0, 0, False

    def write(self, text):
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.|\n", text):
            if part.startswith("\x1b["):
                self.control(part[2:-1], part[-1])
            elif part == "\r":
                self.column = 0
            elif part == "\n":
                self.row += 1
            else:
                self.put(part)

    def put(self, character):
        if self.column == COLUMNS:
            self.row, self.column = self.row + 1, 0
        while len(self.rows) <= self.row:
            self.rows.append([])
        line = self.rows[self.row]
        line.extend([(" ", False)] * (self.column + 1 - len(line)))
        line[self.column] = (character, self.green)
        self.column += 1

    def control(self, number, letter):
        count = int(number) if number.isdigit() else 1
        if letter == "A":
            self.row = max(0, self.row - count)
        elif letter == "B":
            self.row += count
        elif letter == "G":
            self.column = count - 1
        elif letter in "JK":
            # Of the line the whole, or the rest; of the screen, the rest.
            if self.row < len(self.rows):
                self.rows[self.row] = [] if number == "2" else self.rows[self.row][: self.column]
            if letter == "J":
                self.rows = self.rows[: self.row + 1]
        elif letter == "m":
            self.green = "32" in number.split(";")

    def shown(self):
        return [list(row) for row in self.rows[:ROWS]]


def record(program, folder):
    """Runs the program in the folder, and returns the screens with the seconds at which each began."""
    screen = Screen()
    screen.write(f"$ cat days.txt\r\n{LIST.rstrip()}\r\n$ {SHOWN}\r\n")
    screens, begun = [(0.0, screen.shown())], time.monotonic()
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        os.chdir(folder)
        os.environ.update(TERM="xterm-256color", HOME=folder, LANG="C.UTF-8")
        os.execv(program, ["tds", *SHOWN.split()[1:]])
    rest = b""
    while True:
        # What is drawn at once comes in several pieces.
        until, ended = time.monotonic() + EVERY, False
        while (left := until - time.monotonic()) > 0 and not ended:
            if select.select([terminal], [], [], left)[0]:
                try:
                    piece = os.read(terminal, 65536)
                except OSError:
                    piece = b""
                ended, rest = not piece, rest + piece
        text = rest.decode("utf-8", "ignore")
        rest = b"" if not text or text.encode() == rest else rest[len(text.encode()):]
        screen.write(text)
        if ended:
            break
        screens.append((time.monotonic() - begun, screen.shown()))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 0:
        sys.exit(f"tds ended with {code}")
    screen.write("$ ")
    screens.append((time.monotonic() - begun, screen.shown()))
    return [screens[0]] + [after for before, after in zip(screens, screens[1:]) if after[1] != before[1]]


def texts(rows):
    """The runs of one colour, each at its place; rows are pairs of a number and what it shows."""
    for number, row in rows:
        at = 0
        while at < len(row):
            end = at + 1
            while end < len(row) and row[end][1] == row[at][1]:
                end += 1
            text = "".join(character for character, _ in row[at:end]).rstrip()
            if text:
                x, y = LEFT + at * WIDTH, TOP + 14 + number * LINE
                colour = ' class="g"' if row[at][1] else ""
                # With this length, a font of another width fills the same columns.
                length = f'textLength="{len(text) * WIDTH:.4g}" lengthAdjust="spacingAndGlyphs"'
                yield f'<text x="{x:.4g}" y="{y}"{colour} {length}>{html.escape(text, quote=False)}</text>'
            at = end


def picture(screens):
    width, height = round(2 * LEFT + COLUMNS * WIDTH), 2 * TOP + ROWS * LINE
    whole = screens[-1][0] + LAST
    moves = "".join(f"{100 * at / whole:.4g}%{{transform:translateX({-number * width}px)}}" for number, (at, _) in enumerate(screens))
    last = (len(screens) - 1) * width
    # Rows that stay are drawn once, and do not move.
    first, *others = [rows for _, rows in screens]
    stay = [number for number, row in enumerate(first) if all(number < len(rows) and rows[number] == row for rows in others)]
    still = "".join(texts((number, first[number]) for number in stay))
    moving = [[(number, row) for number, row in enumerate(rows) if number not in stay] for _, rows in screens]
    strip = "".join(f'<g transform="translate({number * width})">{"".join(texts(rows))}</g>\n' for number, rows in enumerate(moving))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="monospace" font-size="14">
<title>{SHOWN}</title>
<style>
text{{fill:#d8dee9;white-space:pre}}.g{{fill:#8fbc6a}}
.strip{{transform:translateX({-last}px);animation:strip {whole:.4g}s step-end infinite}}
@media (prefers-reduced-motion){{.strip{{animation:none}}}}
@keyframes strip{{{moves}100%{{transform:translateX({-last}px)}}}}
</style>
<rect width="100%" height="100%" rx="6" fill="#22272e"/>
{still}
<g class="strip">
{strip}</g>
</svg>
"""


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "days.txt").write_text(LIST)
        screens = record(program, folder)
    svg = picture(screens)
    target = pathlib.Path(__file__).parent / "plots" / "bulk.svg"
    target.write_text(svg)
    print(f"{len(screens)} screens, {len(svg.encode())} bytes")


if __name__ == "__main__":
    main()
