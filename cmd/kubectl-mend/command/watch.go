package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

func addWatch(c *cobra.Command, on *bool) {
	c.Flags().BoolVarP(on, "watch", "w", false,
		"Print every 2 s, until interrupted. On a terminal each page takes the place of the one before.")
}

// clearScreen takes the cursor to the upper left corner of a terminal, and removes what stood on it.
const clearScreen = "\x1b[H\x1b[2J"

// watch prints once, or again and again. On a terminal each page takes the place of the one before, which stays until the new one is
// whole. An error ends it only if nothing was printed before.
func (o *Options) watch(ctx context.Context, on bool, show func(context.Context, io.Writer) error) error {
	if !on {
		return show(ctx, o.Out)
	}
	terminal := text.Raw(o.Out)
	for printed := false; ; printed = true {
		var written bytes.Buffer
		screen := text.OnScreen(&written)
		err := show(ctx, screen)
		if err != nil && !printed {
			return err
		}
		if ctx.Err() != nil { // what was read halfway is not shown
			return nil //nolint:nilerr // the user has ended it
		}
		if err != nil {
			_, _ = fmt.Fprintln(screen, "error:", text.Below(err.Error()))
		}
		if text.IsTerminal(terminal) {
			_, _ = fmt.Fprint(terminal, clearScreen)
		}
		if _, err := terminal.Write(written.Bytes()); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.redraws):
		}
	}
}
