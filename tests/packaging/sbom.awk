# Turns lines `NAME vVERSION [(PATH)]|LICENSE` of `cargo tree` into a CycloneDX document.
BEGIN {
    FS = "|"
    print "{\"bomFormat\": \"CycloneDX\", \"specVersion\": \"1.5\", \"version\": 1, \"components\": ["
}
{
    split($1, words, " ")
    name = words[1]
    version = substr(words[2], 2)
    printf "%s  {\"type\": \"library\", \"name\": \"%s\", \"version\": \"%s\", \"purl\": \"pkg:cargo/%s@%s\"", separator, name, version, name, version
    gsub("/", " OR ", $2) # an old form of license expressions
    if ($2 != "") printf ", \"licenses\": [{\"expression\": \"%s\"}]", $2
    printf "}"
    separator = ",\n"
}
END { print "\n]}" }
