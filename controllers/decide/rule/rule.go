// Package rule has what a rule says of an object: what blocks it, who acts on it, and what comes next. A decision fills it in, and
// conditions, events and the command line print it.
package rule

import cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"

// Ref names an object.
type Ref = cliv1.Reference

// Blocker is one thing that keeps a remediation from starting, or from going on.
type Blocker = cliv1.Blocker

// Step is the next thing that happens, or what a user has to do.
type Step = cliv1.Step

// MissingPermission is the reason of what the reader may not read, while the manager may.
const MissingPermission = "MissingPermission"

// Unreadable blocks what depends on the requests of a kind, or their templates, which the reader may not read.
func Unreadable(kind string) Blocker {
	return Blocker{
		Reason: MissingPermission, Detail: kind + "s",
		Text: kind + "s and their templates could not be read with your rights, and the manager may read them",
		Fix:  "Ask as a user who may read " + kind + "s and their templates",
	}
}
