"""The parts of `bench/triton_answers.py`: repositories, what is asked, both servers."""
