"""Trees over the words of a sentence: from distances and brackets, drawn, averaged, and gold ones of treebanks."""
