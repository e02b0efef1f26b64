package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"
)

const maxError = 4 << 10

// A kind is the reason why a text is invalid.
type kind string

const (
	// The text can't be compiled.
	syntax kind = "syntax"
	// Values exclude each other.
	conflict kind = "conflict"
	// A value is missing or not concrete.
	incomplete kind = "incomplete"
	// The text reports an error, or its result exceeds a limit.
	user kind = "user"
)

// A failure is the reason why a request has no result.
type failure struct {
	kind kind
	text string
	// The text uses operators on lists as older versions of CUE have them.
	isOld bool
}

func newFailure(kind kind, err error) *failure {
	return failureOfFirst(kind, errors.Errors(err))
}

// failureOfFirst returns a failure with the text of the first error, and the number of the others.
func failureOfFirst(kind kind, all []errors.Error) *failure {
	text := strings.TrimPrefix(errors.String(all[0]), "cue: marshal error: ")
	if more := len(all) - 1; more > 0 {
		text = fmt.Sprintf("%s (and %d more errors)", text, more)
	}
	return &failure{kind: kind, text: truncate(text)}
}

func userFailure(format string, arguments ...any) *failure {
	return &failure{kind: user, text: truncate(fmt.Sprintf(format, arguments...))}
}

// failureOf returns a failure of a kind, or one that the text reports itself.
func failureOf(kind kind, err error, file *ast.File) *failure {
	reported, isOld := reportedErrors(file), false
	all := slices.Clone(errors.Errors(err))
	for index, one := range all {
		if position := one.Position(); kind != user && position.IsValid() && reported[position.Offset()] {
			kind = user
			all[0], all[index] = one, all[0]
		}
		if format, _ := one.Msg(); strings.Contains(format, " of lists is superseded by ") {
			isOld = true
		}
	}
	failure := failureOfFirst(kind, all)
	failure.isOld = isOld
	return failure
}

// reportedErrors returns the offsets of calls of error and of literals of bottom.
func reportedErrors(file *ast.File) map[int]bool {
	offsets := map[int]bool{}
	add := func(position token.Pos) { offsets[position.Offset()] = true }
	before := func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CallExpr:
			if function, ok := node.Fun.(*ast.Ident); ok && function.Name == "error" {
				add(node.Pos())
				add(node.Lparen)
			}
		case *ast.BottomLit:
			add(node.Pos())
		}
		return true
	}
	ast.Walk(file, before, nil)
	return offsets
}

// truncate cuts a text that is too long, between characters.
func truncate(text string) string {
	const mark = "…"
	if len(text) <= maxError {
		return text
	}
	end := maxError - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}
