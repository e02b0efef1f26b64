# Turns lines `NAME vVERSION [(PATH)]|LICENSE` of `cargo tree`, and `PATH vVERSION golang|` of Go modules, into a CycloneDX
# document.
BEGIN {
    FS = "|"
    print "{\"bomFormat\": \"CycloneDX\", \"specVersion\": \"1.5\", \"version\": 1, \"components\": ["
}
{
    split($1, words, " ")
    name = words[1]
    is_go = words[3] == "golang"
    version = is_go ? words[2] : substr(words[2], 2)
    purl = "pkg:" (is_go ? "golang" : "cargo") "/" name "@" version
    printf "%s  {\"type\": \"library\", \"name\": \"%s\", \"version\": \"%s\", \"purl\": \"%s\"", separator, name, version, purl
    gsub("/", " OR ", $2) # an old form of license expressions
    if ($2 != "") printf ", \"licenses\": [{\"expression\": \"%s\"}]", $2
    printf "}"
    separator = ",\n"
}
END { print "\n]}" }
