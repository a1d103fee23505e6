"""The structure of an HTML page."""

from html.parser import HTMLParser

VOID = {"br", "col", "meta", "path", "rect", "wbr"}


class Outline(HTMLParser):
    """What a browser would see: tags, attributes, text; complains of elements that are not closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts, self.raw = [], [], [], [], {}
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("script", "style"):
            self.raw.setdefault(self.open[-1], []).append(data)
        else:
            self.texts.append(data)

    def values(self, name):
        return [value for _, key, value in self.attributes if key == name]
