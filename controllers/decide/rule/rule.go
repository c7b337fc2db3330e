// Package rule has what a rule says about an object: what blocks its remediation, who acts on it, and what comes next. Decisions fill these
// types in, and conditions, events and the command line print them.
package rule

import cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"

// Ref names an object.
type Ref = cliv1.Reference

// Blocker is one thing that keeps a remediation from starting, or from going on.
type Blocker = cliv1.Blocker

// Step is the next thing that happens, or what a user has to do.
type Step = cliv1.Step

// MissingPermission is the reason of blockers in kubectl mend if the user may not read objects that the manager may read.
const MissingPermission = "MissingPermission"

// Unreadable returns the blocker if the user may not read the requests of a kind, or their templates.
func Unreadable(kind string) Blocker {
	return Blocker{
		Reason: MissingPermission, Detail: kind + "s",
		Text: kind + "s and their templates could not be read with your rights, and the manager may read them",
		Fix:  "Ask as a user who may read " + kind + "s and their templates",
	}
}
