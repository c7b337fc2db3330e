package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// ask asks the user whether to proceed; the error says that they do not. An interrupt is an answer, No, for which the read of a line has to be given up.
// There has to be somebody to be asked, unless the user has said yes before.
func ask(ctx context.Context, streams genericiooptions.IOStreams, yes, asks bool) error {
	if yes {
		return nil
	}
	if !asks {
		return Exit{Refused, errors.New("nothing was changed: there is no terminal to ask at, so say --yes")}
	}
	_, _ = fmt.Fprint(streams.Out, "Proceed? [y/N] ")
	type line struct {
		text string
		err  error
	}
	answered := make(chan line, 1)
	go func() {
		typed, err := bufio.NewReader(streams.In).ReadString('\n')
		answered <- line{typed, err}
	}()
	select {
	case <-ctx.Done():
	case answer := <-answered:
		if answer.err != nil && !errors.Is(answer.err, io.EOF) {
			return fmt.Errorf("read the answer: %w", answer.err)
		}
		switch strings.ToLower(strings.TrimSpace(answer.text)) {
		case "y", "yes":
			return nil
		}
	}
	return Exit{Refused, errors.New("nothing was changed")}
}
