/*
 * The process that holds a pod's namespaces: sleeps until it is told to stop.
 * As process 1 of a shared PID namespace it also has to collect orphans, which
 * ignoring SIGCHLD does.
 */
#include <signal.h>
#include <unistd.h>

static void stop(int signal_number)
{
	(void)signal_number;
	_exit(0);
}

int main(void)
{
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	signal(SIGCHLD, SIG_IGN);
	for (;;)
		pause();
}
