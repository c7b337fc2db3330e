package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// scene is one story. Each is in a file of its own.
type scene struct {
	name string // for SCENE=
	play func(context.Context, *environment) error
	// apart is why it is not played with all others; empty if it is played with them.
	apart string
	// selfHosted says that it is about a cluster that is its own management cluster.
	selfHosted bool
}

// scenes are all there are, in the order in which they are played.
func scenes() []scene {
	return []scene{
		{name: "replace", play: replace},
		{name: "short-circuit", play: shortCircuit},
		{name: "reboot", play: reboot},
		{name: "dead-host", play: deadHost, apart: "it takes four minutes"},
		{name: "escalate", play: escalate, apart: "it needs a cluster that manages itself", selfHosted: true},
	}
}

// choose returns the scene of a name; without one, all that can be played one after another.
func choose(name string) ([]scene, error) {
	if name == "" || name == "all" {
		return slices.DeleteFunc(scenes(), func(s scene) bool { return s.apart != "" }), nil
	}
	var names []string
	for _, s := range scenes() {
		if s.name == name {
			return []scene{s}, nil
		}
		names = append(names, s.name)
	}
	return nil, fmt.Errorf("there is no scene %q; SCENE is one of: %s, all", name, strings.Join(names, ", "))
}

// leftOut says which scenes were left out, and why, when all were chosen; it is empty if none was.
func leftOut(chosen []scene) string {
	if len(chosen) < 2 {
		return ""
	}
	var hints []string
	for _, s := range scenes() {
		if s.apart != "" {
			hints = append(hints, fmt.Sprintf("Not shown, because %s: make demo SCENE=%s", s.apart, s.name))
		}
	}
	return strings.Join(hints, "\n")
}

// play plays the opening, and then the scenes.
func (s *environment) play(ctx context.Context, chosen []scene) error {
	first := scene{name: "opening", play: opening}
	if s.selfHosted() {
		first.play = openingNodes
	}
	for _, next := range append([]scene{first}, chosen...) {
		if err := next.play(ctx, s); err != nil {
			return fmt.Errorf("scene %s: %w", next.name, err)
		}
	}
	return nil
}
