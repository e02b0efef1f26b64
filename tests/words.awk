# Counts the handwritten words of pages: words with a letter or digit, without what is generated and what programs print.
# A page says in its third line that it is generated; a part of a page is between a mark and `<!-- end of … -->`.
FNR == 1 { is_part = 0; is_output = 0; is_page = 0 }
FNR == 3 && /[Gg]enerated from / { is_page = 1 }
/^<!-- .*: (written|generated) by / { is_part = 1 }
/^ *```(console|text)/ { is_output = 1; next }
/^ *```$/ { is_output = 0; next }
!is_part && !is_output && !is_page { for (i = 1; i <= NF; i++) if ($i ~ /[[:alnum:]]/) words++ }
/^<!-- end of / { is_part = 0 }
END { printf "%d handwritten words in docs/ and README.md\n", words }
