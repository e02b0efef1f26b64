package main

import "cuelang.org/go/cue/parser"

// An inspection has the properties of a template that do not depend on its parameters.
type inspection struct {
	// The template uses + or * on what may be lists, and is rewritten if CUE refuses that.
	MayBeRewritten bool `json:"may_be_rewritten"`
}

// inspect parses a template.
func inspect(source string) (inspection, *failure) {
	file, err := parser.ParseFile("", source)
	if err != nil {
		return inspection{}, newFailure(syntax, err)
	}
	rewritten, err := rewrite(file)
	if err != nil {
		return inspection{}, newFailure(syntax, err)
	}
	return inspection{MayBeRewritten: rewritten}, nil
}
