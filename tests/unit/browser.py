"""A page in headless Chromium: what a script of ours finds in it. The page is loaded from a file, nothing from anywhere else."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

# Before the page's own scripts: what goes wrong in them, and what the page would load from outside.
_WATCH = """<script>
window.wrong = [];
window.addEventListener("error", e => window.wrong.push(String(e.message || e.target.outerHTML)), true);
window.addEventListener("unhandledrejection", e => window.wrong.push(String(e.reason)));
console.error = (...all) => window.wrong.push(all.join(" "));
</script>"""
_ASK = """<script>
window.addEventListener("load", () => {{
  let found = null;
  try {{ found = (() => {{ {script} }})(); }} catch (error) {{ window.wrong.push(String(error.stack)); }}
  const loaded = performance.getEntriesByType("resource").map(r => r.name);
  const pre = document.createElement("pre");
  pre.id = "found";
  pre.textContent = JSON.stringify({{found, wrong: window.wrong, loaded}});
  document.body.append(pre);
}});
</script></body>"""


def ask(page: str, script: str, folder: Path, *, width: int = 1240) -> dict[str, Any]:
    """{'found': what the script returns, 'wrong': errors, 'loaded': addresses}. script: the body of a function."""
    file = folder / "page.html"
    asked = page.replace("<head>", f"<head>{_WATCH}", 1)
    file.write_text(asked.replace("</body>", _ASK.format(script=script), 1), encoding="utf-8")
    browser = shutil.which("chromium") or "chromium"
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--hide-scrollbars", f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width},2000", "--dump-dom", file.as_uri(),
        ],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match, f"the script did not come to its end: {done.stderr[-2000:]}"
    told: dict[str, Any] = json.loads(html.unescape(match.group(1)))
    return told
