"""Wire formats that several layers use: frames between processes, AWS's protocols, JSON, HTTP."""
