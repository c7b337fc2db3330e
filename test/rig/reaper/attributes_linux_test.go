package main

import (
	"os"
	"testing"
)

func TestAKilledReaperEndsItsProgram(t *testing.T) {
	cmd := reaper(program(true)...)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = in
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	rest := running(t, out)

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	allGone(t, rest)
}
