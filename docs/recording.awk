# Draws lines of text as a terminal of `columns` columns, in SVG. Lines that begin with `$` are commands.
function escaped(text) {
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    gsub(/>/, "\\&gt;", text)
    return text
}

# Adds a line; a longer one continues below, as in a terminal.
function add(text, class) {
    do {
        lines[++count] = substr(text, 1, columns)
        classes[count] = class
        text = substr(text, columns + 1)
    } while (text != "")
}

/^\$ / && NR > 1 { add("", "output") }
{ add($0, /^\$ / ? "command" : /^error: / ? "error" : "output") }

END {
    width = columns * 8 + 32
    height = count * 18 + 56
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", width, height, width, height
    print "<title>A terminal: portolan syncs the examples and shows them</title>"
    print "<style>"
    print "text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre; fill: #c9d1d9 }"
    print ".command { fill: #7ee787; font-weight: bold }"
    print ".error { fill: #ffa198 }"
    print "</style>"
    print "<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#161b22\"/>"
    for (button = 0; button < 3; button++)
        printf "<circle cx=\"%d\" cy=\"18\" r=\"6\" fill=\"%s\"/>\n", 22 + button * 20, substr("#ff5f57#febc2e#28c840", button * 7 + 1, 7)
    for (line = 1; line <= count; line++)
        if (lines[line] != "")
            printf "<text x=\"16\" y=\"%d\" class=\"%s\" textLength=\"%d\" lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\">%s</text>\n", \
                line * 18 + 38, classes[line], length(lines[line]) * 8, escaped(lines[line])
    print "</svg>"
}
