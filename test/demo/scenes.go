package main

import (
	"context"
	"fmt"
	"strings"
)

// scene is one story. Each is in a file of its own.
type scene struct {
	name string // for SCENE=
	play func(context.Context, *environment) error
}

// scenes are all there are, in the order in which they are played.
func scenes() []scene {
	return []scene{{"replace", replace}, {"short-circuit", shortCircuit}, {"reboot", reboot}}
}

// choose returns the scene of a name; without one, all.
func choose(name string) ([]scene, error) {
	if name == "" || name == "all" {
		return scenes(), nil
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

// play plays the opening, and then the scenes.
func (s *environment) play(ctx context.Context, chosen []scene) error {
	for _, next := range append([]scene{{"opening", opening}}, chosen...) {
		if err := next.play(ctx, s); err != nil {
			return fmt.Errorf("scene %s: %w", next.name, err)
		}
	}
	return nil
}
