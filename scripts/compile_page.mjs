// Compiles what the page loads with the very Python that will run it: node compile_page.mjs PYODIDE-FOLDER ARCHIVE CONFIG
import { readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, archive, config] = process.argv.slice(2).map((name) => resolve(name));
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`).href);
// Columns of tracebacks are a good part of compiled code: lines do.
const env = { HOME: '/home/pyodide', PYTHONNODEBUGRANGES: '1' };
const python = await loadPyodide({ indexURL: `${folder}/`, env });
const library = `${folder}/python_stdlib.zip`;
python.FS.writeFile('/library.zip', readFileSync(library));
python.FS.writeFile('/archive.tar.gz', readFileSync(archive));
python.globals.set('config', readFileSync(config, 'utf8'));
python.runPython(`
import gzip, importlib.util, io, json, marshal, sys, tarfile, zipfile

# What a page imports until its first verdict is compiled; the rest stays source, which is smaller.
with tarfile.open("/archive.tar.gz") as before:
    before.extractall("/app", filter="data")
sys.path.insert(0, "/app")
from vramwise.page.answers import Answers
answer = json.loads(Answers().answer(json.dumps({"ask": "look", "text": config, "settings": {"gpu": "rtx-4090"}})))
assert answer["ok"], answer
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
imported = {name.removeprefix(top) for name in files for top in ("/app/", "/lib/python314.zip/") if name.startswith(top)}
assert len(imported) > 400, len(imported)

def compiled(name, source):
    """A .pyc that is never held against its source, which is not there; without docstrings."""
    code = compile(source, name, "exec", dont_inherit=True, optimize=2)
    return importlib.util.MAGIC_NUMBER + b"\\x01\\0\\0\\0" + bytes(8) + marshal.dumps(code)

with zipfile.ZipFile("/library.zip") as before, zipfile.ZipFile("/library.out", "w") as after:
    for name in before.namelist():
        data = before.read(name)
        if name in imported:
            name, data = name + "c", compiled(name, data)
        after.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED, 9)

with tarfile.open("/archive.tar.gz") as before, open("/archive.out", "wb") as out:
    with gzip.GzipFile("", "wb", 9, out, mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as after:
        for about in before:
            data = before.extractfile(about).read()
            if about.name in imported:
                data = compiled(about.name, data)
                about.name += "c"
            about.size = len(data)
            after.addfile(about, io.BytesIO(data))
`);
writeFileSync(library, python.FS.readFile('/library.out'));
writeFileSync(archive, python.FS.readFile('/archive.out'));
