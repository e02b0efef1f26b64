package main

import (
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/ast/astutil"
	"cuelang.org/go/cue/token"
)

// rewrite replaces `+` and `*` on lists, which CUE had until version 0.10, by calls of the package list, so that templates for
// KubeVela 1.9 and 1.10 are evaluated. Other uses of these operators stay. It reports whether it has changed the file.
//
// An operand is a list if it is written as one, or refers to a label that is a list anywhere in the file, as `label` or
// `parent.label`. One operand is enough: a list can't be added to anything else.
func rewrite(file *ast.File) (bool, error) {
	lists := listsOf(file)
	changed := false
	call := func(name string, arguments ...ast.Expr) ast.Expr {
		changed = true
		list := ast.NewIdent("list")
		list.Node = ast.NewImport(nil, "list")
		return ast.NewCall(ast.NewSel(list, name), arguments...)
	}
	after := func(cursor astutil.Cursor) bool {
		expression, ok := cursor.Node().(*ast.BinaryExpr)
		if !ok || !lists.contains(expression) {
			return true
		}
		switch expression.Op {
		case token.ADD:
			// The whole chain at its root.
			if parent, ok := cursor.Parent().Node().(*ast.BinaryExpr); !ok || parent.Op != token.ADD {
				cursor.Replace(call("Concat", ast.NewList(operands(expression)...)))
			}
		case token.MUL:
			list, number := expression.X, expression.Y
			if lists.contains(number) {
				list, number = number, list
			}
			cursor.Replace(call("Repeat", list, number))
		}
		return true
	}
	astutil.Apply(file, nil, after)
	if !changed {
		return false, nil
	}
	return true, astutil.Sanitize(file)
}

// operands returns the operands of a chain of `+`.
func operands(expression ast.Expr) []ast.Expr {
	if sum, ok := expression.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
		return append(operands(sum.X), operands(sum.Y)...)
	}
	return []ast.Expr{expression}
}

// A reference is a label, after the label of its parent if it is referred to by both.
type reference struct{ parent, label string }

type lists map[reference]bool

// listsOf returns the labels whose values are lists.
func listsOf(file *ast.File) lists {
	lists := lists{}
	for {
		known := len(lists)
		lists.add("", file.Decls)
		// A label may refer to one that is found later.
		if len(lists) == known {
			return lists
		}
	}
}

func (lists lists) add(parent string, declarations []ast.Decl) {
	for _, declaration := range declarations {
		switch declaration := declaration.(type) {
		case *ast.Field:
			label, _, err := ast.LabelName(declaration.Label)
			if err != nil {
				label = ""
			}
			if label != "" && lists.contains(declaration.Value) {
				lists[reference{label: label}] = true
				lists[reference{parent, label}] = true
			}
			lists.addNested(label, declaration.Value)
		case *ast.EmbedDecl:
			lists.addNested(parent, declaration.Expr)
		case *ast.Comprehension:
			lists.addNested(parent, declaration.Value)
		}
	}
}

func (lists lists) addNested(parent string, value ast.Expr) {
	switch value := value.(type) {
	case *ast.StructLit:
		lists.add(parent, value.Elts)
	case *ast.BinaryExpr:
		lists.addNested(parent, value.X)
		lists.addNested(parent, value.Y)
	case *ast.ListLit:
		for _, element := range value.Elts {
			lists.addNested("", element)
		}
	case *ast.Comprehension:
		lists.addNested(parent, value.Value)
	}
}

// contains returns true if the value of an expression is a list.
func (lists lists) contains(expression ast.Expr) bool {
	switch expression := expression.(type) {
	case *ast.ListLit:
		return true
	case *ast.ParenExpr:
		return lists.contains(expression.X)
	case *ast.UnaryExpr:
		// A default.
		return expression.Op == token.MUL && lists.contains(expression.X)
	case *ast.BinaryExpr:
		switch expression.Op {
		case token.ADD, token.MUL, token.OR, token.AND:
			return lists.contains(expression.X) || lists.contains(expression.Y)
		}
	case *ast.Ident:
		return lists[reference{label: expression.Name}]
	case *ast.SelectorExpr:
		label, _, err := ast.LabelName(expression.Sel)
		parent, ok := expression.X.(*ast.Ident)
		return err == nil && ok && lists[reference{parent.Name, label}]
	}
	return false
}
