package main

import "cuelang.org/go/cue/parser"

// An inspection has the properties of a template that do not depend on its parameters.
type inspection struct {
	// The template is for an older version of CUE, and is rewritten.
	Rewritten bool `json:"rewritten"`
}

// inspect parses a template.
func inspect(source string) (result inspection, failure *failure) {
	defer recoverAs(&failure)
	file, err := parser.ParseFile("", source)
	if err != nil {
		return inspection{}, newFailure(syntax, err)
	}
	rewritten, err := rewrite(file)
	if err != nil {
		return inspection{}, newFailure(syntax, err)
	}
	return inspection{Rewritten: rewritten}, nil
}
