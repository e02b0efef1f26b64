package main

import (
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
)

// importsPackages returns true for a template that calls functions. It can't be compiled, because only the parent has the
// packages of these functions.
func importsPackages(file *ast.File) bool {
	for spec := range file.ImportSpecs() {
		path, err := strconv.Unquote(spec.Path.Value)
		if err == nil && (strings.HasPrefix(path, "vela/") || strings.HasPrefix(path, "ext/")) {
			return true
		}
	}
	return false
}

// checkFile compiles a template without parameters and context, and checks that its values do not exclude each other. It
// ignores errors that parameters or the context may remove.
func checkFile(file *ast.File) (checked struct{}, _ *failure) {
	value, failure := buildFile(file)
	if failure != nil {
		return checked, failure.without(isMissing)
	}
	if err := value.Validate(); err != nil {
		// A template may report missing parameters.
		reported := reportedErrors(file)
		isIgnored := func(err errors.Error) bool {
			return isMissing(err) || err.Position().IsValid() && reported[err.Position().Offset()]
		}
		failure = failureOf(conflict, err, file).without(isIgnored)
	}
	return checked, failure
}

// isMissing returns true for errors that say that the context or a value is missing, and for titles of lists of errors.
func isMissing(err errors.Error) bool {
	format, arguments := err.Msg()
	if format == "reference %q not found" {
		return len(arguments) == 1 && arguments[0] == "context"
	}
	return format == "cannot reference optional field: %s" ||
		strings.HasPrefix(format, "incomplete ") ||
		strings.Contains(format, "non-concrete value") ||
		strings.Contains(format, "must be concrete") ||
		strings.HasSuffix(format, ":")
}

// without returns a failure with the other errors, which the text does not report itself, or none.
func (failure *failure) without(isIgnored func(errors.Error) bool) *failure {
	failure.errors = slices.DeleteFunc(slices.Clone(failure.errors), isIgnored)
	if len(failure.errors) == 0 {
		return nil
	}
	if failure.kind == user {
		failure.kind = conflict
	}
	return failure
}
