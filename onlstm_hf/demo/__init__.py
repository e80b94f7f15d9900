"""The web page of `onlstm-hf demo`: sentences in, trees and surprisals out, to look at, to link to and to download.

It is a plain page, a few routes of Starlette around templates, because that is less code to trust than a framework of
components: everything that the server answers is listed in `app.py`, nothing is uploaded, and nothing is stored. The
page works without its script, which only spares the reader the reloading.
"""
