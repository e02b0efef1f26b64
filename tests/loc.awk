# Counts lines of code, doc comments and other comments; a `#[cfg(test)] mod tests { … }` ends what is counted of a file.
FNR == 1 { in_tests = 0 }
/^#\[cfg\(test\)\]/ { pending = FNR }
/^mod [a-z_]*tests? \{/ && pending == FNR - 1 { in_tests = 1 }
in_tests { next }
/^[ \t]*\/\/[\/!]/ { docs++; next }
/^[ \t]*\/\// { comments++; next }
/^[ \t]*$/ { next }
{ code++ }
END { printf "%d lines of code, %d of doc comments, %d of other comments\n", code, docs, comments }
