# SPDX-License-Identifier: GPL-2.0
"""What checks find."""

import json


class Report:
    """What the checks find. A problem has a command that fixes it; a hint is no problem yet; what cannot be told from here
    has the command that tells it."""

    def __init__(self):
        self.findings = []

    def put(self, status, check, text, fix="", proof=""):
        """Keeps one finding."""
        self.findings.append({"status": status, "check": check, "text": text, "fix": fix, "proof": proof})

    def ok(self, check, text, proof=""):
        """All is as it should be."""
        self.put("ok", check, text, proof=proof)

    def hint(self, check, text, fix="", proof=""):
        """Works, and could be better or matters to some."""
        self.put("hint", check, text, fix, proof)

    def unknown(self, check, text, fix, proof):
        """May keep something from working."""
        self.put("unknown", check, text, fix, proof)

    def problem(self, check, text, fix, proof=""):
        """Keeps something from working."""
        self.put("problem", check, text, fix, proof)

    def count(self, status):
        """How many findings of a kind."""
        return sum(f["status"] == status for f in self.findings)

    def show(self, as_data, quiet=False):
        """Prints them."""
        if as_data:
            print(json.dumps({"problems": self.count("problem"), "unknown": self.count("unknown"),
                              "findings": self.findings}, indent=1))
            return
        for finding in self.findings:
            if finding["status"] == "ok" and quiet:
                continue
            print(f"{finding['status']:8} {finding['check']}: {finding['text']}")
            for word in ("fix", "proof"):
                if finding[word]:
                    print(f"{'':9}{word + ':':7}{finding[word]}")
