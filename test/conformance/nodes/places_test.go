package nodes

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
)

// places are where a spec runs: in memory by default. One that runs at both places is two specs.
type places struct{ memory, server bool }

var (
	// inMemory is for what an API server adds nothing to.
	inMemory = places{memory: true}
	// atServer is for what only an API server knows: schemas, the status subresource, watches, finalizers, rights, kinds that come and go.
	atServer = places{server: true}
	// everywhere is for the samples that run at an API server too, there in the first mode alone: the others write the same.
	everywhere = places{memory: true, server: true}
)

// in is a spec that runs in one mode.
func (p places) in(m mode, text string, body func(context.Context, *environment)) {
	GinkgoHelper()
	p.inModes(text, []mode{m}, body)
}

// once is a spec about a check with one template.
func (p places) once(text string, body func(context.Context, *environment)) {
	GinkgoHelper()
	p.in(mode{}, text, body)
}

// inEveryMode is a spec that runs in all modes.
func (p places) inEveryMode(text string, body func(context.Context, *environment)) {
	GinkgoHelper()
	p.inModes(text, modes, body)
}

func (p places) inModes(text string, modes []mode, body func(context.Context, *environment)) {
	GinkgoHelper()
	if p.memory {
		It(text, func(ctx SpecContext) {
			for _, m := range modes {
				play(ctx, newEnvironmentInMemory(ctx, m), body)
			}
		})
	}
	if p.server {
		if p.memory {
			text += atAServer
		}
		It(text, needsServer, func(ctx SpecContext) { play(ctx, newEnvironment(ctx, modes[0]), body) })
	}
}

// atAServer ends the names of specs that run at an API server too.
const atAServer = " (at an API server)"

func in(m mode, text string, body func(context.Context, *environment)) {
	GinkgoHelper()
	inMemory.in(m, text, body)
}

func once(text string, body func(context.Context, *environment)) {
	GinkgoHelper()
	inMemory.once(text, body)
}

func inEveryMode(text string, body func(context.Context, *environment)) {
	GinkgoHelper()
	inMemory.inEveryMode(text, body)
}

func inModes(text string, modes []mode, body func(context.Context, *environment)) {
	GinkgoHelper()
	inMemory.inModes(text, modes, body)
}

// needsServer labels the specs that need an API server.
var needsServer = Label("server")

// play runs a spec in an environment.
func play(ctx context.Context, s *environment, body func(context.Context, *environment)) {
	GinkgoHelper()
	defer s.end()
	s.start()
	body(ctx, s)
}
